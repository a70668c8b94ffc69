    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x98
    mov r14,rsi
    mov rbx,rdi
    cmp QWORD PTR [rdi+0x280],0x0
    je 0
    lea rdi,[rsp+0x50]
    mov rsi,rbx
    call _ZN4mlx58ethernet4send56_$LT$impl$u20$mlx5..ethernet..EthernetQueue$LT$M$GT$$GT$13send_outgoing
    cmp BYTE PTR [rsp+0x50],0x20
    jne 17
0:
    mov rax,QWORD PTR [rbx+0x350]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 19
1:
    mov ebp,DWORD PTR [rbx+0x5f8]
    lea r15,[rbx+0x2d0]
    cmp BYTE PTR [rbx+0x3a8],0x0
    jne 20
2:
    lea rax,[rbx+0x200]
    mov WORD PTR [rbx+0x3a8],0x1
    mov DWORD PTR [rbx+0x3a0],0x0
    mov DWORD PTR [rbx+0x3a4],ebp
    mov rcx,0xffffffffffffffff
    movabs rdx,0x100000000
    cmp QWORD PTR [rbx+0x300],rdx
    je 3
    mov rdi,QWORD PTR [rbx+0x308]
    cmp DWORD PTR [rdi+0x190],0x2
    jne 3
    mov rsi,QWORD PTR [rdi+0x198]
    mov edx,DWORD PTR [rsi+0x100]
    movzx esi,WORD PTR [rsi+0x80]
    cmp si,dx
    je 3
    mov rsi,QWORD PTR [rdi+0x198]
    mov r8,QWORD PTR [rsi+0x180]
    mov esi,DWORD PTR [rsi+0x188]
    dec esi
    and esi,edx
    movzx edx,si
    mov rdx,QWORD PTR [r8+rdx*8]
    mov esi,DWORD PTR [rdi+0x1a4]
    mov edi,DWORD PTR [rdi+0x1a0]
    cmp edi,0x7fff
    ja 3
    mov r8d,DWORD PTR [rbx+0x418]
    or r8,0x20
    shl rsi,0x10
    or rsi,r8
    shl edi,0x10
    or edi,r8d
    jmp 4
3:
    xor edx,edx
    mov rdi,0xffffffffffffffff
    mov rsi,0xffffffffffffffff
4:
    mov r8d,DWORD PTR [rbx+0x3a4]
    sub r8d,DWORD PTR [rbx+0x3a0]
    imul r8,QWORD PTR [rbx+0x310]
    mov r9,QWORD PTR [rbx+0x338]
    add r8,r9
    cmovb r8,rcx
    mov rcx,QWORD PTR [rbx+0x348]
    cmp rcx,r8
    cmovb r8,rcx
    mov QWORD PTR [rbx+0x378],r9
    mov QWORD PTR [rbx+0x380],r8
    mov QWORD PTR [rbx+0x388],rsi
    mov QWORD PTR [rbx+0x390],rdi
    mov QWORD PTR [rbx+0x398],rdx
    shr esi,0x10
    mov ecx,DWORD PTR [rbx+0x268]
    shl rsi,cl
    add rsi,rdx
    mov edx,0x10
    sub edx,ecx
    mov QWORD PTR [rsp+0x18],0x0
    mov QWORD PTR [rsp+0x20],r15
    mov QWORD PTR [rsp+0x28],rsi
    mov DWORD PTR [rsp+0x30],edx
    mov QWORD PTR [rsp+0x80],r14
    lea rcx,[rsp+0x18]
    mov QWORD PTR [rsp+0x88],rcx
    mov QWORD PTR [rsp+0x90],rax
    lea rdi,[rsp+0x20]
    lea r15,[rsp+0x80]
    mov rax,QWORD PTR [_ZN4mlx58ethernet8striding11each_behind]
    mov DWORD PTR [rsp+0xc],ecx
5:
    mov rsi,r15
    call rax
6:
    mov r14,QWORD PTR [rsp+0x20]
    mov rax,QWORD PTR [r14+0xa8]
    cmp rax,QWORD PTR [r14+0xb0]
    je 7
    mov eax,DWORD PTR [rax+0x3c]
    shr eax,0x18
    xor eax,DWORD PTR [r14+0x148]
    test al,0x1
    jne 13
7:
    lea rax,[rbx+0x208]
    mov QWORD PTR [rsp+0x38],rax
    lea rax,[rbx+0x290]
    mov QWORD PTR [rsp+0x40],rax
    mov rdi,r14
    lea rsi,[rsp+0x38]
    lea rdx,[data]
    call QWORD PTR [_ZN7mlx5_cq4ring7strides46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$11find_packet]
    test al,al
    je 8
    mov r13,QWORD PTR [r14+0x50]
    mov rax,QWORD PTR [r14+0x58]
    mov QWORD PTR [rsp+0x10],rax
    movzx r12d,WORD PTR [r14+0x60]
    movzx eax,WORD PTR [r14+0x48]
    mov DWORD PTR [rsp+0xc],eax
    mov eax,DWORD PTR [r14+0x4c]
    mov DWORD PTR [rsp+0x8],eax
    mov rbp,QWORD PTR [r14+0x38]
    mov eax,0x188
    add rbp,rax
    and r12d,0x600
    jmp 9
8:
    xor r13d,r13d
9:
    mov rax,QWORD PTR [rsp+0x20]
    movzx edx,WORD PTR [rax+0xba]
    movzx ecx,BYTE PTR [rbx+0x268]
    shl rdx,cl
    add rdx,QWORD PTR [rax+0xc8]
    mov QWORD PTR [rsp+0x28],rdx
    test r13,r13
    je 13
    lea rdi,[rsp+0x38]
    lea rsi,[rbx+0x208]
    mov rdx,QWORD PTR [rsp+0x10]
    mov ecx,DWORD PTR [rsp+0xc]
    mov r8d,DWORD PTR [rsp+0x8]
    lea r9,[rbx+0x298]
    call QWORD PTR [_ZN4mlx58ethernet8striding8Striding4find]
    cmp BYTE PTR [rsp+0x38],0x0
    jne 12
    cmp DWORD PTR [rsp+0x8],0x0
    jns 6
    mov rax,QWORD PTR [rsp+0x20]
    mov ecx,DWORD PTR [rax+0xd4]
    inc ecx
    mov DWORD PTR [rax+0xd4],ecx
    sub ecx,DWORD PTR [rax+0xd0]
    imul rcx,QWORD PTR [rax+0x40]
    mov rdx,0xffffffffffffffff
    add rcx,QWORD PTR [rax+0x68]
    jb 10
    mov rdx,rcx
10:
    mov rcx,QWORD PTR [rax+0x78]
    cmp rcx,rdx
    jb 11
    mov rcx,rdx
11:
    mov QWORD PTR [rax+0xb0],rcx
    jmp 6
12:
    movups xmm0,XMMWORD PTR [rsp+0x40]
    mov QWORD PTR [rsp+0x50],r13
    mov rax,QWORD PTR [rsp+0x10]
    mov QWORD PTR [rsp+0x58],rax
    mov QWORD PTR [rsp+0x60],rbp
    mov WORD PTR [rsp+0x68],0x82
    mov WORD PTR [rsp+0x6a],r12w
    movups XMMWORD PTR [rsp+0x70],xmm0
    mov rdi,r15
    lea rsi,[rsp+0x50]
    call QWORD PTR [_ZN4mlx58ethernet8striding6rarely]
    lea rdi,[rsp+0x20]
    mov rax,QWORD PTR [_ZN4mlx58ethernet8striding11each_behind]
    jmp 5
13:
    mov r14,QWORD PTR [rsp+0x18]
    mov rdi,rbx
    call _ZN4core3ptr84drop_in_place$LT$mlx5..ethernet..Burst$LT$mlx5..ethernet..striding..Striding$GT$$GT$
    cmp QWORD PTR [rbx+0x280],0x0
    je 14
    lea rdi,[rsp+0x38]
    mov rsi,rbx
    call _ZN4mlx58ethernet4send56_$LT$impl$u20$mlx5..ethernet..EthernetQueue$LT$M$GT$$GT$13send_outgoing
    jmp 15
14:
    mov BYTE PTR [rsp+0x38],0x20
15:
    mov eax,DWORD PTR [rbx+0x5d0]
    mov ecx,DWORD PTR [rbx+0x5e4]
    mov rdx,QWORD PTR [rbx+0x5c8]
    mov edx,DWORD PTR [rdx+0x100]
    sub ecx,edx
    movzx ecx,cx
    mov esi,DWORD PTR [rbx+0x5d0]
    mov edx,DWORD PTR [rbx+0x5f0]
    xor edi,edi
    sub esi,ecx
    cmovb esi,edi
    sub eax,esi
    sub edx,eax
    jbe 16
    lea rdi,[rsp+0x50]
    mov rsi,rbx
    call QWORD PTR [_ZN4mlx58ethernet8striding89_$LT$impl$u20$mlx5..ethernet..EthernetQueue$LT$mlx5..ethernet..striding..Striding$GT$$GT$13post_receives]
    cmp BYTE PTR [rsp+0x50],0x20
    jne 17
16:
    mov eax,0x1
    cmp BYTE PTR [rsp+0x38],0x20
    je 18
17:
    xor eax,eax
18:
    mov rdx,r14
    add rsp,0x98
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
19:
    lea rdi,[rbx+0x2c0]
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue6attend]
    cmp al,0xa
    je 1
    jmp 17
20:
    mov rdi,r15
    call QWORD PTR [_ZN7mlx5_cq4ring7strides46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$11end_unended]
    jmp 2
    jmp 21
    jmp 21
21:
    mov r14,rax
    mov rdi,rbx
    call _ZN4core3ptr84drop_in_place$LT$mlx5..ethernet..Burst$LT$mlx5..ethernet..striding..Striding$GT$$GT$
    mov rdi,r14
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
