    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x68
    mov QWORD PTR [rsp+0x10],rsi
    mov rax,QWORD PTR [rdi]
    mov ecx,DWORD PTR [rax]
    test cl,0x2
    je 15
    test rdx,rdx
    je 11
    movzx esi,WORD PTR [rdi+0x38]
    movzx ecx,WORD PTR [rdi+0x3a]
    mov QWORD PTR [rsp+0x18],rdi
    jmp 1
0:
    mov rax,QWORD PTR [rsp+0x20]
    add QWORD PTR [rsp+0x10],rax
    mov rdx,QWORD PTR [rsp+0x60]
    mov rax,QWORD PTR [rsp+0x58]
    sub rdx,rax
    mov esi,DWORD PTR [rsp+0xc]
    add esi,eax
    test rdx,rdx
    mov rdi,QWORD PTR [rsp+0x18]
    mov ecx,DWORD PTR [rsp+0x28]
    je 10
1:
    mov eax,DWORD PTR [rdi+0x34]
    cmp si,cx
    jne 2
    mov rcx,QWORD PTR [rdi+0x20]
    mov BYTE PTR [rcx+0x82],0x1
    mov ecx,DWORD PTR [rcx+0x100]
    add cx,WORD PTR [rdi+0x28]
    mov WORD PTR [rdi+0x3a],cx
2:
    cmp cx,si
    je 14
    mov DWORD PTR [rsp+0x28],ecx
    sub ecx,esi
    movzx ecx,cx
    mov DWORD PTR [rsp+0xc],esi
    movzx esi,si
    and eax,esi
    cmp rcx,rdx
    mov QWORD PTR [rsp+0x60],rdx
    cmovae rcx,rdx
    mov esi,DWORD PTR [rdi+0x28]
    mov edx,esi
    sub rsi,rax
    cmp rsi,rcx
    cmovae rsi,rcx
    mov QWORD PTR [rsp+0x58],rsi
    lea ecx,[rsi*8+0x0]
    lea rcx,[rcx+rcx*2]
    mov QWORD PTR [rsp+0x20],rcx
    cmp edx,eax
    je 0
    mov rcx,QWORD PTR [rsp+0x18]
    mov r13d,DWORD PTR [rcx+0x2c]
    mov ebp,DWORD PTR [rcx+0x30]
    lea r15d,[rax*8+0x0]
    add r15,QWORD PTR [rcx+0x10]
    mov rbx,rbp
    imul rbx,rax
    add rbx,QWORD PTR [rcx+0x8]
    cmp r13d,0x1
    jbe 6
    mov r12,QWORD PTR [rsp+0x20]
    mov r14,QWORD PTR [rsp+0x10]
    jmp 5
3:
    lea rdi,[rsp+0x2c]
    mov rsi,rbx
    mov r8d,r13d
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue18write_scatter_list]
    movzx eax,BYTE PTR [rsp+0x2c]
    cmp al,0x1f
    jne 12
4:
    mov rax,QWORD PTR [r14+0x10]
    add r14,0x18
    mov QWORD PTR [r15],rax
    add rbx,rbp
    add r15,0x8
    add r12,0xffffffffffffffe8
    je 0
5:
    mov rdx,QWORD PTR [r14]
    mov rcx,QWORD PTR [r14+0x8]
    cmp rcx,0x1
    jne 3
    mov eax,DWORD PTR [rdx+0x8]
    test eax,eax
    jle 3
    mov ecx,DWORD PTR [rdx+0xc]
    mov rdx,QWORD PTR [rdx]
    movups xmm0,XMMWORD PTR [data]
    movups XMMWORD PTR [rbx+0x10],xmm0
    bswap eax
    bswap rdx
    bswap ecx
    mov DWORD PTR [rbx],eax
    mov DWORD PTR [rbx+0x4],ecx
    mov QWORD PTR [rbx+0x8],rdx
    jmp 4
6:
    mov r12,QWORD PTR [rsp+0x20]
    mov r14,QWORD PTR [rsp+0x10]
    jmp 9
7:
    lea rdi,[rsp+0x2c]
    mov rsi,rbx
    mov r8d,r13d
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue18write_scatter_list]
    movzx eax,BYTE PTR [rsp+0x2c]
    cmp al,0x1f
    jne 12
8:
    mov rax,QWORD PTR [r14+0x10]
    add r14,0x18
    mov QWORD PTR [r15],rax
    add rbx,rbp
    add r15,0x8
    add r12,0xffffffffffffffe8
    je 0
9:
    mov rdx,QWORD PTR [r14]
    mov rcx,QWORD PTR [r14+0x8]
    cmp rcx,0x1
    jne 7
    mov eax,DWORD PTR [rdx+0x8]
    test eax,eax
    jle 7
    mov ecx,DWORD PTR [rdx+0xc]
    mov rdx,QWORD PTR [rdx]
    bswap eax
    bswap rdx
    bswap ecx
    mov DWORD PTR [rbx],eax
    mov DWORD PTR [rbx+0x4],ecx
    mov QWORD PTR [rbx+0x8],rdx
    jmp 8
10:
    cmp si,WORD PTR [rdi+0x38]
    je 11
    mov WORD PTR [rdi+0x38],si
    mov rax,QWORD PTR [rdi+0x20]
    mov WORD PTR [rax+0x80],si
    mov rax,QWORD PTR [rdi+0x18]
    movzx ecx,si
    bswap ecx
    mov DWORD PTR [rax],ecx
11:
    xor eax,eax
    jmp 13
12:
    mov ecx,DWORD PTR [rsp+0x34]
    mov DWORD PTR [rsp+0x3f],ecx
    mov rcx,QWORD PTR [rsp+0x2d]
    mov QWORD PTR [rsp+0x38],rcx
    sub r14d,DWORD PTR [rsp+0x10]
    shr r14d,0x3
    mov BYTE PTR [rsp+0x4c],al
    mov rax,QWORD PTR [rsp+0x38]
    mov QWORD PTR [rsp+0x4d],rax
    mov eax,DWORD PTR [rsp+0x3f]
    mov DWORD PTR [rsp+0x54],eax
    imul eax,r14d,0xffffaaab
    mov esi,DWORD PTR [rsp+0xc]
    add esi,eax
    lea rdx,[rsp+0x4c]
    mov rdi,QWORD PTR [rsp+0x18]
    call _ZN8mlx5_wqe7receive5queue12ReceiveQueue4stop
13:
    add rsp,0x68
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
14:
    lea rdx,[data]
    call _ZN8mlx5_wqe7receive5queue12ReceiveQueue4stop
    jmp 13
15:
    mov eax,DWORD PTR [rax]
    mov cl,0x1e
    test eax,eax
    je 18
    mov cl,0x1d
    test al,0x4
    jne 18
    mov cl,0x1b
    test al,0x10
    jne 18
    movzx eax,ah
    cmp eax,0x6
    ja 16
    lea rcx,[data]
    movzx eax,BYTE PTR [rax+rcx*1]
    jmp 17
16:
    xor eax,eax
17:
    mov BYTE PTR [rsp+0x39],al
    mov cl,0x1c
18:
    mov BYTE PTR [rsp+0x38],cl
    lea rsi,[rsp+0x38]
    xor edi,edi
    call QWORD PTR [_ZN8mlx5_wqe7request11batch_error7Refused3new]
    jmp 13
