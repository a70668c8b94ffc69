    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r12,rdx
    mov rbx,rdi
    mov rax,QWORD PTR [rsi]
    mov edx,DWORD PTR [rax]
    test dl,0x2
    je 11
    mov r14,rsi
    movups xmm0,XMMWORD PTR [rcx]
    movaps XMMWORD PTR [rsp+0x20],xmm0
    mov r15d,DWORD PTR [rsi+0x34]
    lea ebp,[r15+0x1]
    cmp ebp,DWORD PTR [rsi+0x38]
    jne 0
    lea rdi,[rsp+0x14]
    mov rsi,r14
    call QWORD PTR [_ZN8mlx5_wqe7receive6shared18SharedReceiveQueue10extend_run]
    cmp BYTE PTR [rsp+0x14],0x1f
    jne 6
0:
    mov rax,QWORD PTR [r14+0x8]
    mov edx,DWORD PTR [r14+0x30]
    imul rdx,r15
    mov ecx,DWORD PTR [rsp+0x28]
    test ecx,ecx
    jle 1
    add rax,rdx
    mov rdx,QWORD PTR [rsp+0x20]
    mov esi,DWORD PTR [rsp+0x2c]
    bswap ecx
    bswap rdx
    bswap esi
    mov DWORD PTR [rax+0x10],ecx
    mov DWORD PTR [rax+0x14],esi
    mov QWORD PTR [rax+0x18],rdx
    jmp 2
1:
    lea rsi,[rax+rdx*1]
    add rsi,0x10
    mov r8d,DWORD PTR [r14+0x2c]
    lea rdi,[rsp+0x8]
    lea rdx,[rsp+0x20]
    mov r13d,0x1
    mov ecx,0x1
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue18write_scatter_list]
    cmp BYTE PTR [rsp+0x8],0x1f
    jne 8
    mov ecx,r15d
    shl r13,cl
    mov rax,QWORD PTR [r14+0x58]
    mov ecx,r15d
    shr ecx,0x6
    or QWORD PTR [rax+rcx*8],r13
2:
    mov eax,DWORD PTR [r14+0x34]
    mov rcx,QWORD PTR [r14+0x10]
    mov QWORD PTR [rcx+rax*8],r12
    mov rcx,QWORD PTR [r14+0x18]
    mov BYTE PTR [rcx+rax*1],0x1
    mov DWORD PTR [r14+0x34],ebp
    cmp ebp,DWORD PTR [r14+0x38]
    jne 7
    mov eax,DWORD PTR [r14+0x40]
    mov ecx,eax
    sub ecx,DWORD PTR [r14+0x44]
    mov rdi,0xffffffffffffffff
    shr rdi,cl
    mov ecx,eax
    shl rdi,cl
    mov rcx,QWORD PTR [r14+0x58]
    mov edx,eax
    shr edx,0x6
    mov rsi,QWORD PTR [rcx+rdx*8]
    mov r8,rdi
    not r8
    and r8,rsi
    mov QWORD PTR [rcx+rdx*8],r8
    and rdi,rsi
    je 5
    and eax,0xffffffc0
    mov ecx,0xffff
    mov rdx,QWORD PTR [r14+0x8]
    mov esi,DWORD PTR [r14+0x30]
    add ecx,DWORD PTR [r14+0x28]
    cmp DWORD PTR [r14+0x2c],0x1
    jbe 4
    movups xmm0,XMMWORD PTR [data]
3:
    mov r8,rdi
    tzcnt rdi,rdi
    mov r9d,eax
    or r9d,edi
    add edi,eax
    inc edi
    and edi,ecx
    imul r9,rsi
    rol di,0x8
    mov WORD PTR [rdx+r9*1+0x2],di
    movups XMMWORD PTR [rdx+r9*1+0x20],xmm0
    lea rdi,[r8-0x1]
    and rdi,r8
    jne 3
    jmp 5
4:
    mov r8,rdi
    tzcnt rdi,rdi
    mov r9d,eax
    or r9d,edi
    add edi,eax
    inc edi
    and edi,ecx
    rol di,0x8
    imul r9,rsi
    mov WORD PTR [rdx+r9*1+0x2],di
    lea rdi,[r8-0x1]
    and rdi,r8
    jne 4
5:
    mov rax,QWORD PTR [r14+0x8]
    mov edx,DWORD PTR [r14+0x30]
    mov esi,0x1
    mov ecx,r15d
    shl rsi,cl
    imul rdx,r15
    mov rcx,QWORD PTR [r14+0x40]
    mov edi,DWORD PTR [r14+0x40]
    mov r8d,edi
    rol r8w,0x8
    mov WORD PTR [rax+rdx*1+0x2],r8w
    mov rax,QWORD PTR [r14+0x58]
    shr r15d,0x6
    or QWORD PTR [rax+r15*8],rsi
    mov eax,DWORD PTR [r14+0x3c]
    sub eax,edi
    add eax,DWORD PTR [r14+0x34]
    mov DWORD PTR [r14+0x3c],eax
    mov QWORD PTR [r14+0x34],rcx
    mov QWORD PTR [r14+0x40],0x0
    jmp 7
6:
    mov eax,DWORD PTR [rsp+0x1c]
    mov DWORD PTR [rsp+0x10],eax
    mov rax,QWORD PTR [rsp+0x14]
    mov QWORD PTR [rsp+0x8],rax
    cmp al,0x1f
    jne 9
7:
    mov rax,QWORD PTR [r14+0x20]
    mov ecx,DWORD PTR [r14+0x34]
    add ecx,DWORD PTR [r14+0x3c]
    movzx ecx,cx
    bswap ecx
    mov DWORD PTR [rax],ecx
    mov BYTE PTR [rbx],0x1f
    jmp 10
8:
    mov edx,DWORD PTR [r14+0x28]
    dec edx
    and edx,ebp
    mov rax,QWORD PTR [r14+0x8]
    mov ecx,DWORD PTR [r14+0x30]
    rol dx,0x8
    imul rcx,r15
    mov WORD PTR [rax+rcx*1+0x2],dx
    cmp DWORD PTR [r14+0x2c],0x2
    jb 9
    add rax,rcx
    movups xmm0,XMMWORD PTR [data]
    movups XMMWORD PTR [rax+0x20],xmm0
9:
    mov eax,DWORD PTR [rsp+0x10]
    mov DWORD PTR [rbx+0x8],eax
    mov rax,QWORD PTR [rsp+0x8]
    mov QWORD PTR [rbx],rax
10:
    mov rax,rbx
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
11:
    mov eax,DWORD PTR [rax]
    test eax,eax
    je 12
    test al,0x4
    jne 13
    test al,0x10
    jne 14
    movzx ecx,ah
    mov al,0x1c
    cmp ecx,0x6
    ja 15
    lea rdx,[data]
    movzx ecx,BYTE PTR [rcx+rdx*1]
    jmp 16
12:
    mov al,0x1e
    mov cl,0x7
    jmp 16
13:
    mov al,0x1d
    mov cl,0x8
    jmp 16
14:
    mov al,0x1b
    mov cl,0x9
    jmp 16
15:
    xor ecx,ecx
16:
    mov BYTE PTR [rbx],al
    mov BYTE PTR [rbx+0x1],cl
    jmp 10
